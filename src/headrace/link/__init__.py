"""The link to other sites: Zenoh session, endpoints, credentials, certificates, access rules, keys."""
