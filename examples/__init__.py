"""Small programs that use a broker like any other client."""
