"""Small programs that use a broker as anybody would."""
