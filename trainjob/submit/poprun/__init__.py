"""The back end for IPU-PODs: poprun on the pod's launch host, here or over ssh."""
