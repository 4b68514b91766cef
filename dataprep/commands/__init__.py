"""What the command line can do: a function a command; its signature gives the options."""
