"""What does editing a set of memories change?"""
