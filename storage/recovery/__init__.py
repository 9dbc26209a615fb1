"""What a start does with the files it finds: checks, rebuilds, completes, or leaves a log offline."""
