"""What the stand-ins share: where an instance stands, how instances meet, and saying once what they are."""
