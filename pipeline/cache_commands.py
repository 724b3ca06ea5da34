"""`latentmill cache` and what looks after a cache: verify, stats, gc, export, import-kohya."""
