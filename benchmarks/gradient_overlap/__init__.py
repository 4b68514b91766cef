"""What clipping does to the overlap of backward and all-reduce, on a real slow link."""
