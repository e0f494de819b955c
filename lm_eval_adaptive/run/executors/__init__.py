"""Where models live and answer: in this process, or as actors of a cluster."""
