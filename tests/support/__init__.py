"""What several folders of tests share: sites in this process, served queues, secured links, the command line."""
