"""What every part may use: files, processes, the machine."""
