"""What moved between two scans, memory by memory?"""
