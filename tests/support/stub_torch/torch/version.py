"""What torch was built for."""

cuda = None
hip = None
