const http = require("http");

http.createServer((request, response) => response.end("ok")).listen(4000);
