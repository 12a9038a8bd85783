"""Which memories made the model predict a token: proposed by a gradient, decided by silencing."""
