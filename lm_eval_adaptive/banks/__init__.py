"""Item banks as files: find, load, make from logs or tables, check against a task's documents."""
