cnt = 0
for word in ["a", "b", "c"]:
    cnt += 1
print(cnt)
