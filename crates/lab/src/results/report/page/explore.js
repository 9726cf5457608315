// Gives each chart of lines a second view, drawn by uPlot: the figures under the pointer or the arrow
// keys, a part of the axis by dragging. The drawing that was there stays for those without scripts,
// and comes back by the same button.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = new Map();

  // Figures of an axis; those of points are written by the lab.
  const time = ns => {
    const unit = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([size]) => ns >= size);
    return unit ? `${+(ns / unit[0]).toPrecision(3)} ${unit[1]}` : "";
  };
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

  const draw = (figure, box) => {
    const lines = JSON.parse(figure.dataset.lines);
    const places = lines.ticks.map(([x]) => x);
    const points = lines.series.map(({ points }) =>
      places.map(place => points.find(([x]) => Math.abs(x - place) < 1e-9)));
    // A logarithm has no zero.
    const y = point => point && (point[1] > 0 || !lines.isLog) ? point[1] : null;
    const axis = { stroke: color("--faint"), grid: { stroke: color("--grid") }, ticks: { stroke: color("--line") } };
    const view = new uPlot({
      width: box.clientWidth,
      height: 320,
      scales: {
        x: { time: false },
        y: lines.isLog ? { distr: 3 } : { range: (_, low, high) => [0, high * 1.05] },
      },
      axes: [
        {
          ...axis,
          label: lines.x,
          splits: (_, axis, low, high) => places.filter(x => x >= low && x <= high),
          values: (_, splits) => splits.map(x => lines.ticks[places.indexOf(x)][1]),
        },
        { ...axis, size: 64, values: (_, splits) => splits.map(v => v === null ? "" : lines.isTime ? time(v) : compact.format(v)) },
      ],
      series: [
        { label: lines.x, value: (_, x, series, at) => at === null ? "" : lines.ticks[at][1] },
        ...lines.series.map(({ name, kind }, line) => ({
          label: name,
          stroke: color(`--k${kind}`),
          width: 2,
          points: { show: true, size: 7 },
          spanGaps: true,
          value: (_, y, series, at) => points[line][at]?.[4] ?? "",
        })),
      ],
      hooks: { draw: [view => intervals(view, points)] },
    }, [places, ...points.map(line => line.map(y))], box);
    return { view, places };
  };

  const intervals = (view, points) => {
    const { ctx } = view;
    ctx.save();
    points.forEach((line, at) => {
      if (!view.series[at + 1].show) return;
      ctx.strokeStyle = view.series[at + 1].stroke();
      ctx.lineWidth = devicePixelRatio;
      for (const [x, , low, high] of line.filter(point => point && point[2] !== null)) {
        const left = view.valToPos(x, "x", true) + (at - (points.length - 1) / 2) * 2.5;
        if (left < view.bbox.left || left > view.bbox.left + view.bbox.width) continue;
        const top = Math.max(view.valToPos(high, "y", true), view.bbox.top);
        ctx.beginPath();
        ctx.moveTo(left, top);
        ctx.lineTo(left, view.valToPos(low, "y", true));
        ctx.stroke();
      }
    });
    ctx.restore();
  };

  const open = (figure, box) => {
    shown.set(figure, { box, ...draw(figure, box) });
    box.onkeydown = event => {
      const { view, places } = shown.get(figure);
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") view.setScale("x", { min: places[0], max: places.at(-1) });
      if (!by) return;
      event.preventDefault();
      const now = view.cursor.idx ?? (by > 0 ? -1 : places.length);
      const next = Math.min(Math.max(now + by, 0), places.length - 1);
      view.setCursor({ left: view.valToPos(places[next], "x"), top: view.over.clientHeight / 2 });
    };
  };

  const close = figure => {
    shown.get(figure).view.destroy();
    shown.delete(figure);
  };

  for (const figure of document.querySelectorAll("figure[data-lines]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Explore";
    button.setAttribute("aria-expanded", "false");
    const box = document.createElement("div");
    box.className = "explored";
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "The same chart: left and right read its figures, Escape shows all again");
    box.setAttribute("aria-live", "polite");
    box.hidden = true;
    figure.querySelector("figcaption").append(" ", button);
    figure.append(box);
    button.onclick = () => {
      const isOpen = shown.has(figure);
      box.hidden = isOpen;
      button.setAttribute("aria-expanded", String(!isOpen));
      figure.classList.toggle("is-explored", !isOpen);
      isOpen ? close(figure) : open(figure, box);
    };
  }

  const again = () => [...shown].forEach(([figure, { box }]) => {
    close(figure);
    open(figure, box);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("resize", () => shown.forEach(({ view, box }) => view.setSize({ width: box.clientWidth, height: 320 })));
});
