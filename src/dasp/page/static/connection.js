// The websocket. When it is lost, reconnect with growing pauses; the server then sends everything.

const FIRST = 500; // milliseconds
const LONGEST = 8000;

export class Connection {
  constructor(address, { news, status }) {
    Object.assign(this, { address, news, status, wait: FIRST });
    this.open();
  }

  open() {
    this.status("connecting");
    this.socket = new WebSocket(this.address);
    this.socket.addEventListener("open", () => {
      this.wait = FIRST;
      this.status("live");
    });
    this.socket.addEventListener("message", (event) => this.news(JSON.parse(event.data)));
    this.socket.addEventListener("close", () => this.#again());
  }

  send(command) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(command));
  }

  #again() {
    const pause = this.wait * (0.8 + 0.4 * Math.random());
    this.wait = Math.min(2 * this.wait, LONGEST);
    this.status("lost", pause);
    setTimeout(() => this.open(), pause);
  }
}
