"use strict";
// Tooltips, zoom and the light/dark switch. The page is complete without it.
(() => {
  const tip = document.getElementById("tip");
  const svgNS = "http://www.w3.org/2000/svg";
  document.documentElement.classList.add("js");

  // Values, formatted as on the page.
  const short = (v) => {
    const m = Math.abs(v);
    if (m === 0) return "0";
    const digits = m >= 99.95 ? 0 : m >= 9.995 ? 1 : m >= 0.9995 ? 2 : Math.min(9, 2 - Math.floor(Math.log10(m)));
    const text = v.toFixed(digits);
    return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  };
  const time = (ns) => {
    const m = Math.abs(ns);
    const [scale, unit] = m < 999.5 ? [1, "ns"] : m < 999.5e3 ? [1e3, "µs"] : m < 999.5e6 ? [1e6, "ms"] : [1e9, "s"];
    return `${short(ns / scale)} ${unit}`;
  };
  const ranks = (n) => {
    n = Math.round(n);
    if (n >= 1048576 && n % 1048576 === 0) return `${n / 1048576} Mi`;
    if (n >= 1024 && n % 1024 === 0) return `${n / 1024} Ki`;
    return String(n);
  };
  const write = {
    s: (v) => `${short(v)} s`, ns: time, hz: (v) => (v >= 1000 ? `${short(v / 1000)} kHz` : `${short(v)} Hz`),
    ranks, share: (v) => `${short(v * 100)} %`, times: (v) => `${short(v)}×`, plain: short,
  };

  const scale = (text) => {
    const [kind, from, to, unit] = text.split(" ");
    return { log: kind === "log", from: Number(from), to: Number(to), unit };
  };
  // Converts a position from 0 to 1 on an axis to its value, and back.
  const value = (s, at) => (s.log ? s.from * Math.pow(s.to / s.from, at) : s.from + at * (s.to - s.from));
  const place = (s, v) => (s.log ? Math.log(v / s.from) / Math.log(s.to / s.from) : (v - s.from) / (s.to - s.from));

  const steps = (low, high, about) => {
    const rough = (high - low) / about;
    const unit = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].find((m) => m * unit >= rough) * unit;
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && found.length < 60; i++) found.push(i * step);
    return found;
  };
  const ticks = (s, low, high, about) => {
    if (!s.log || high / low < 20) return steps(low, high, about);
    const base = s.unit === "ranks" ? 2 : 10;
    const [a, b] = [Math.ceil(Math.log(low) / Math.log(base) - 1e-9), Math.floor(Math.log(high) / Math.log(base) + 1e-9)];
    const every = Math.max(1, Math.ceil((b - a) / about));
    const found = [];
    for (let k = a; k <= b; k += every) found.push(Math.pow(base, k));
    return found;
  };

  const say = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const [w, h] = [tip.offsetWidth, tip.offsetHeight];
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - w - 6))}px`;
    tip.style.top = `${event.clientY + 18 + h > innerHeight ? event.clientY - h - 10 : event.clientY + 18}px`;
  };
  const hush = () => { tip.hidden = true; };
  const make = (name, attributes, text) => {
    const element = document.createElementNS(svgNS, name);
    for (const [key, v] of Object.entries(attributes)) element.setAttribute(key, v);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const within = (svg, event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [at.x, at.y];
  };

  // Plots: tooltip for the nearest mark; dragging a rectangle zooms in, dragging with the shift key pans.
  for (const svg of document.querySelectorAll("svg.plot")) {
    const [left, top, width, height] = svg.dataset.box.split(" ").map(Number);
    const [sx, sy] = [scale(svg.dataset.x), scale(svg.dataset.y)];
    const marks = svg.querySelector(".marks");
    const full = [0, 1, 0, 1];
    // Lanes have no vertical axis.
    const flat = svg.dataset.zoom === "x";
    let view = full;
    let points = null;
    let from = null;
    let held = null;
    let band = null;
    const reset = document.createElement("button");
    reset.className = "reset";
    reset.type = "button";
    reset.textContent = "reset zoom";
    reset.hidden = true;
    svg.parentElement.append(reset);

    const collect = () => {
      points = [];
      for (const path of marks.querySelectorAll("path.pts")) {
        const found = path.getAttribute("d").matchAll(/[ML](-?[\d.]+) (-?[\d.]+)/g);
        for (const [, x, y] of found) points.push([Number(x), Number(y), path]);
      }
    };
    // From drawing coordinates to zoomed coordinates.
    const shown = (x, y) => [
      left + (((x - left) / width - view[0]) / (view[1] - view[0])) * width,
      top + (((y - top) / height - view[2]) / (view[3] - view[2])) * height,
    ];
    const draw = () => {
      const [kx, ky] = [1 / (view[1] - view[0]), 1 / (view[3] - view[2])];
      const [tx, ty] = [left - kx * (left + view[0] * width), top - ky * (top + view[2] * height)];
      marks.setAttribute("transform", `matrix(${kx} 0 0 ${ky} ${tx} ${ty})`);
      for (const peak of svg.querySelectorAll(".peak")) peak.style.visibility = view === full ? "" : "hidden";
      reset.hidden = view === full;
      const grid = svg.querySelector(".grid");
      const labels = svg.querySelector(".ticks");
      grid.replaceChildren();
      labels.replaceChildren();
      for (const v of ticks(sx, value(sx, view[0]), value(sx, view[1]), Math.max(3, Math.floor(width / 62)))) {
        const x = shown(left + place(sx, v) * width, 0)[0];
        grid.append(make("path", { d: `M${x} ${top}V${top + height}` }));
        labels.append(make("text", { class: "tx", x, y: top + height + 20 }, write[sx.unit](v)));
      }
      if (flat) return;
      for (const v of ticks(sy, value(sy, 1 - view[3]), value(sy, 1 - view[2]), Math.max(3, Math.floor(height / 40)))) {
        const y = shown(0, top + (1 - place(sy, v)) * height)[1];
        grid.append(make("path", { d: `M${left} ${y}H${left + width}` }));
        labels.append(make("text", { class: "ty", x: left - 8, y: y + 4 }, write[sy.unit](v)));
      }
    };
    const inside = ([x, y]) => x >= left && x <= left + width && y >= top && y <= top + height;

    svg.addEventListener("pointerdown", (event) => {
      const at = within(svg, event);
      if (event.button !== 0 || event.pointerType === "touch" || !inside(at)) return;
      event.preventDefault();
      if (event.shiftKey) held = [at, view];
      else from = at;
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      const [x, y] = within(svg, event);
      if (held) {
        const moved = (low, high, part) => Math.max(-low, Math.min(part * (high - low), 1 - high));
        const [[hx, hy], [a, b, c, d]] = held;
        const [mx, my] = [moved(a, b, (hx - x) / width), moved(c, d, (hy - y) / height)];
        if (view !== full) { view = [a + mx, b + mx, c + my, d + my]; draw(); }
        return;
      }
      if (from) {
        const [bx, by] = [Math.max(left, Math.min(x, left + width)), Math.max(top, Math.min(y, top + height))];
        if (!band) svg.append((band = make("rect", { class: "band" })));
        band.setAttribute("x", Math.min(from[0], bx));
        band.setAttribute("y", Math.min(from[1], by));
        band.setAttribute("width", Math.abs(bx - from[0]));
        band.setAttribute("height", Math.abs(by - from[1]));
        hush();
        return;
      }
      const boxed = event.target.closest("[data-tip]");
      if (boxed) {
        const at = value(sx, view[0] + ((x - left) / width) * (view[1] - view[0]));
        return say(event, flat ? `${boxed.dataset.tip}; here ${write[sx.unit](at)}` : boxed.dataset.tip);
      }
      if (!inside([x, y])) return hush();
      if (!points) collect();
      let best = null;
      let nearest = 18 * 18;
      const on = new Map();
      for (const [px, py, path] of points) {
        const [qx, qy] = shown(px, py);
        const d = (qx - x) ** 2 + (qy - y) ** 2;
        if (d >= nearest) continue;
        if (!on.has(path)) on.set(path, getComputedStyle(path).display !== "none");
        if (on.get(path)) { nearest = d; best = [px, py, path]; }
      }
      if (!best) return hush();
      const at = [value(sx, (best[0] - left) / width), value(sy, 1 - (best[1] - top) / height)];
      say(event, `${best[2].dataset.label}: ${write[sx.unit](at[0])}, ${write[sy.unit](at[1])}`);
    });
    svg.addEventListener("pointerup", (event) => {
      held = null;
      if (!from) return;
      const [x, y] = within(svg, event);
      const span = (a, b, start, size, low, high) => {
        const [p, q] = [a, b].sort((m, n) => m - n).map((v) => Math.max(0, Math.min((v - start) / size, 1)));
        // A rectangle without height (or width) zooms along the other axis only.
        return (q - p) * size < 8 ? [low, high] : [low + p * (high - low), low + q * (high - low)];
      };
      const across = flat ? [view[2], view[3]] : span(from[1], y, top, height, view[2], view[3]);
      const next = [...span(from[0], x, left, width, view[0], view[1]), ...across];
      from = null;
      band?.remove();
      band = null;
      if (next.every((v, i) => v === view[i]) || next[1] - next[0] < 1e-5 || next[3] - next[2] < 1e-5) return;
      view = next;
      draw();
    });
    const back = () => { view = full; draw(); };
    svg.addEventListener("dblclick", back);
    reset.addEventListener("click", back);
    svg.addEventListener("pointerleave", hush);
    svg.addEventListener("pointercancel", () => { from = held = null; band?.remove(); band = null; });
  }

  // Heat map: tooltip for the cell under the pointer.
  for (const svg of document.querySelectorAll("svg.heat")) {
    const [left, top, width, height] = svg.dataset.box.split(" ").map(Number);
    const rows = [...svg.querySelectorAll("desc.row")].map((row) => [row.dataset.label, row.dataset.v.split(" ")]);
    const [columns, seconds] = [Number(svg.dataset.columns), Number(svg.dataset.columnS)];
    const names = svg.dataset.names?.split(" ");
    svg.addEventListener("pointermove", (event) => {
      const [x, y] = within(svg, event);
      const column = Math.floor(((x - left) / width) * columns);
      const row = rows[Math.floor(((y - top) / height) * rows.length)];
      if (!row || column < 0 || column >= columns) return hush();
      if (names) return say(event, `${row[0]} ${svg.dataset.verb} ${names[column]}: ${row[1][column]}`);
      say(event, `${row[0]}, from ${short(column * seconds)} s: lost ${row[1][column]} %`);
    });
    svg.addEventListener("pointerleave", hush);
  }

  // Every command can be copied.
  for (const code of document.querySelectorAll(".actions code, .remedy code, pre code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "copy";
    button.setAttribute("aria-label", `copy ${code.textContent}`);
    button.addEventListener("click", () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      // Works on a page from a file, where the clipboard API may not.
      button.textContent = document.execCommand("copy") ? "copied" : "selected";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    (code.parentElement.tagName === "PRE" ? code.parentElement : code).after(button);
  }

  // Light or dark: the system's preference until the user chooses.
  const theme = document.getElementById("theme");
  const dark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const name = () => { theme.textContent = dark() ? "light" : "dark"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; name(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
})();
