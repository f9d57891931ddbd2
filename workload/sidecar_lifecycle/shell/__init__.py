"""What acts: it reads the cluster, asks for decisions, and carries them out."""
