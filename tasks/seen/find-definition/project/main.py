from mail.message import Message

print(Message("Subject: hello").subject)
