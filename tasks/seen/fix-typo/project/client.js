const net = require("net");

function connect(port) {
  const socket = net.connect(port);
  socket.on("error", () => {
    console.error("Conection refused");
  });
  return socket;
}

module.exports = { connect };
