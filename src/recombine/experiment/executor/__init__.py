"""Where jobs are carried out."""
