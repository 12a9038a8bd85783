"""Which memories are specific to one of several corpora?"""
