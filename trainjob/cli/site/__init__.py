"""Commands about clusters, their hosts, data and images."""
