// The phone: a WebSocket to the node for the call, and a worklet for the audio. 20 ms of µ-law in each binary message, JSON for the rest.
"use strict";
(() => {
  const root = document.getElementById("phone");
  const find = (name) => root.querySelector(`[data-part="${name}"]`);
  const status = find("status");
  let call = null;

  function say(text, tone) {
    status.textContent = text;
    status.dataset.tone = tone ?? "";
  }

  function show(isUp) {
    find("call").hidden = isUp;
    find("hang-up").hidden = !isUp;
    find("keypad").disabled = !isUp;
    find("callee").disabled = isUp;
  }

  async function microphone(context) {
    if (!navigator.mediaDevices) throw new Error("This page is neither on this machine nor on HTTPS: browsers give it no microphone.");
    const audio = { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true };
    const stream = await navigator.mediaDevices.getUserMedia({ audio });
    return { stream, source: context.createMediaStreamSource(stream) };
  }

  async function begin(asked) {
    const own = { context: new AudioContext(), asked };
    call = own;
    show(true);
    say("Getting the microphone…");
    document.getElementById("messages").textContent = "Waiting for the first message…";
    find("source").textContent = "";
    await own.context.audioWorklet.addModule(root.dataset.audio);
    own.node = new AudioWorkletNode(own.context, "phone", { outputChannelCount: [1] });
    own.node.connect(own.context.destination);

    try {
      if (find("sample").checked) throw new Error("The sample plays in place of a microphone.");
      const { stream, source } = await microphone(own.context);
      own.stream = stream;
      source.connect(own.node);
      find("source").textContent = "The agent hears your microphone.";
    } catch (error) {
      const sample = await (await fetch(root.dataset.sample)).arrayBuffer();
      own.node.port.postMessage({ sample: new Uint8Array(sample) });
      const why = error.name === "NotAllowedError" ? "You, or this browser, keep the microphone." : error.name === "NotFoundError" ? "There is no microphone." : error.message;
      find("source").textContent = `${why} The agent hears a sample: digits from one to five.`;
    }
    if (call !== own) return stop(own);
    await own.context.resume();
    connect(own);
  }

  function connect(own) {
    const address = new URL(root.dataset.socket, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    own.socket = socket;
    say("Connecting…");
    socket.addEventListener("open", () => socket.send(JSON.stringify({ event: "call", ...own.asked })));
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") told(own, JSON.parse(data));
      else own.node.port.postMessage({ frame: new Uint8Array(data) });
    });
    socket.addEventListener("close", ({ reason }) => finish(own, reason || "The connection to the node broke."));
    own.node.port.onmessage = ({ data }) => {
      if (data.level) {
        find("spoken").value = data.level.spoken;
        find("heard").value = data.level.heard;
      } else if (own.isUp && socket.readyState === WebSocket.OPEN && socket.bufferedAmount < 16000) {
        socket.send(data.frame);
      }
    };
  }

  function told(own, message) {
    if (message.event === "began") follow(own, message.call_id);
    if (message.event === "ringing" && !own.isUp) say("Ringing…");
    if (message.event === "answered") {
      own.isUp = true;
      if (!own.isSilent) say("Connected", "good");
    }
    if (message.event === "no_audio") {
      own.isSilent = true;
      say(message.sentence, "bad");
    }
    if (message.event === "ended") finish(own, message.sentence, message.status || message.code ? "bad" : "");
  }

  // The call's messages as they pass. The stream says when there will be no more.
  function follow(own, id) {
    const link = find("record");
    link.href = `${root.dataset.calls}/${id}`;
    link.hidden = false;
    own.ladder = new EventSource(`${root.dataset.ladder}/${id}/events`);
    own.ladder.addEventListener("parts", ({ data }) => {
      const shown = document.getElementById("messages");
      const open = [...shown.querySelectorAll("details[open][id]")].map((part) => part.id);
      const template = document.createElement("template");
      template.innerHTML = data;
      open.forEach((part) => template.content.getElementById(part)?.setAttribute("open", ""));
      shown.replaceWith(template.content);
    });
    own.ladder.addEventListener("last", () => own.ladder.close());
  }

  function finish(own, sentence, tone) {
    if (own.isOver) return;
    own.isOver = true;
    say(sentence, tone);
    stop(own);
    if (call !== own) return;
    call = null;
    show(false);
    find("source").textContent = "";
    find("spoken").value = 0;
    find("heard").value = 0;
  }

  function stop(own) {
    own.stream?.getTracks().forEach((track) => track.stop());
    own.socket?.close();
    own.context.close();
  }

  function press(keys) {
    if (call?.socket?.readyState !== WebSocket.OPEN) return;
    call.socket.send(JSON.stringify({ event: "digits", digits: keys }));
    find("pressed").textContent += keys;
  }

  // The id of the agent that the text of the choice means; without one the text itself, which the daemon refuses.
  async function agentId() {
    const field = find("agent");
    const chosen = () => [...field.list.options].find((option) => option.value === field.value)?.dataset.id;
    if (chosen()) return chosen();
    const path = new URL(field.dataset.choices, location.href);
    path.searchParams.set("search", field.value.replace(/ \([0-9a-f]{12}\)$/, ""));
    const answer = await fetch(path);
    if (answer.ok) field.list.innerHTML = await answer.text();
    return chosen() ?? field.value;
  }

  root.addEventListener("submit", (event) => {
    event.preventDefault();
    if (call) return;
    const number = find("number").value.replace(/[\s().-]/g, "");
    find("pressed").textContent = "";
    const own = number ? begin({ to: number }) : agentId().then((id) => call ?? begin({ agent_id: id }));
    own.catch((error) => call && finish(call, `The audio of this browser did not start: ${error.message}`, "bad"));
  });
  find("hang-up").addEventListener("click", () => {
    if (call?.socket?.readyState === WebSocket.OPEN) call.socket.send(JSON.stringify({ event: "hang_up" }));
    else if (call) finish(call, "You hung up.");
  });
  find("keypad").addEventListener("click", (event) => {
    if (event.target.dataset.key) press(event.target.dataset.key);
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input[type=text], textarea, select");
    if (call && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey && /^[0-9*#]$/.test(event.key)) press(event.key);
  });
  addEventListener("pagehide", () => call?.socket?.close());
  find("insecure").hidden = isSecureContext;
  find("call").disabled = false;
  show(false);
})();
