"""Site to site: how a product reaches the queues of other sites, and how a site notices what it missed."""
