// Audio of the phone, on the browser's audio thread: from its sample rate to 8 kHz µ-law in frames of 20 ms, and back.
"use strict";
const RATE = 8000;
const FRAME = 160;
const START = 3; // frames that wait before they are played
const MOST = 25; // frames that wait at most: beyond, the delay would grow

// Resampling by windowed sinc in PHASES positions between two samples.
const PHASES = 64;
class Resampler {
  constructor(from, to) {
    this.step = from / to;
    const width = Math.max(1, this.step); // samples that one period of the filter spans
    this.half = Math.ceil(8 * width);
    this.table = Array.from({ length: PHASES }, (_, phase) => Float32Array.from({ length: 2 * this.half }, (_, tap) => {
      const at = (tap - this.half + 1 - phase / PHASES) / width;
      const window = Math.max(0, Math.cos((Math.PI * at) / 16)) ** 2;
      const sinc = at === 0 ? 1 : Math.sin(0.9 * Math.PI * at) / (0.9 * Math.PI * at);
      return (0.9 / width) * sinc * window;
    }));
    this.samples = new Float32Array(2 * this.half);
    this.at = 0;
    this.position = 0;
  }

  push(sample, out) {
    this.samples[this.at] = sample;
    this.at = (this.at + 1) % this.samples.length;
    for (; this.position < 1; this.position += this.step) {
      const taps = this.table[Math.floor(this.position * PHASES)];
      let sum = 0;
      for (let tap = 0; tap < taps.length; tap += 1) sum += taps[tap] * this.samples[(this.at + tap) % taps.length];
      out(sum);
    }
    this.position -= 1;
  }
}

function encode(sample) {
  const value = Math.max(-1, Math.min(1, sample)) * 32767;
  const magnitude = Math.min(32635, Math.abs(value)) + 132;
  const exponent = Math.floor(Math.log2(magnitude)) - 7;
  const mantissa = (magnitude >> (exponent + 3)) & 15;
  return ~((value < 0 ? 128 : 0) | (exponent << 4) | mantissa) & 255;
}

function decode(octet) {
  const bits = ~octet & 255;
  const magnitude = ((((bits & 15) << 3) + 132) << ((bits >> 4) & 7)) - 132;
  return (bits & 128 ? -magnitude : magnitude) / 32768;
}

registerProcessor("phone", class extends AudioWorkletProcessor {
  constructor() {
    super();
    this.down = new Resampler(sampleRate, RATE);
    this.up = new Resampler(RATE, sampleRate);
    this.spoken = [];
    this.frames = [];
    this.isPlaying = false;
    this.at = 0;
    this.played = [];
    this.sample = null;
    this.sampleAt = 0;
    this.energy = { spoken: 0, heard: 0, count: 0 };
    this.port.onmessage = ({ data }) => {
      if (data.sample) this.sample = data.sample;
      if (!data.frame) return;
      if (this.frames.length === MOST) this.frames.splice(0, MOST - START);
      this.frames.push(data.frame);
    };
  }

  speak(sample) {
    this.energy.spoken += sample * sample;
    this.spoken.push(encode(sample));
    if (this.spoken.length < FRAME) return;
    this.port.postMessage({ frame: Uint8Array.from(this.spoken) });
    this.spoken.length = 0;
  }

  // The next sample at 8 kHz.
  hear() {
    if (this.at === 0) this.isPlaying = this.isPlaying ? this.frames.length > 0 : this.frames.length >= START;
    if (!this.isPlaying) return 0;
    const sample = decode(this.frames[0][this.at]);
    this.at = (this.at + 1) % FRAME;
    if (this.at === 0) this.frames.shift();
    return sample;
  }

  process([input], [output]) {
    const count = output[0].length;
    for (let at = 0; at < count; at += 1) {
      this.down.push(input[0]?.[at] ?? 0, (sample) => {
        if (!this.sample) return this.speak(sample);
        this.speak(decode(this.sample[this.sampleAt]));
        this.sampleAt = (this.sampleAt + 1) % this.sample.length;
      });
      while (this.played.length === 0) {
        const sample = this.hear();
        this.energy.heard += sample * sample;
        this.up.push(sample, (made) => this.played.push(made));
      }
      for (const channel of output) channel[at] = this.played[0];
      this.played.shift();
    }

    this.energy.count += count;
    if (this.energy.count >= sampleRate / 10) {
      const level = (energy) => Math.sqrt(energy / ((this.energy.count * RATE) / sampleRate));
      this.port.postMessage({ level: { spoken: level(this.energy.spoken), heard: level(this.energy.heard) } });
      this.energy = { spoken: 0, heard: 0, count: 0 };
    }
    return true;
  }
});
