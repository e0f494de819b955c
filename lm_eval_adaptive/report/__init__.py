"""What people look at: the page, its figures, the live view, trackers. Never imports ``run``."""
