settle(NUMBER)
print("NEXT: look NUMBER+1" if len(questions) > NUMBER else "NEXT: finish")
