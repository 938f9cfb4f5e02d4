"""fabric: how products reach other sites. Zenoh carries them; what travels, when and to whom is decided here."""
