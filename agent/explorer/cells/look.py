look(NUMBER)
print("NEXT: settle NUMBER")
