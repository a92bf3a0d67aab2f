#!/bin/sh
# What holds the nodes of a rehearsed allocation. The directives of the run, as a job of its own would have them, are put
# before this comment.
trap '' USR1
sleep infinity
