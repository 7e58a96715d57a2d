"""Each guard of the fast way, by a row that it alone keeps from being rendered wrongly."""
