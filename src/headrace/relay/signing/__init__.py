"""Signed products: the origin vouches for each product, and any site verifies that, whoever brought it.

covered   which bytes of a product its origin signs
tree      one signature for many products
keyring   keys of origins, their validity and revocation; files of keys
sign      what leaves the origin gets its signature
verify    what arrives is held against it, and against the rules of [[verify]]
replays   an old product is not taken for a new one
"""
