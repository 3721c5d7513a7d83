// One plot: lines over steps, optional bands between two lines, and marks at steps.
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { number } from "../format";
import { PIN_COLORS, type Pin } from "./Timeline";

export interface Line {
  label: string;
  values: (number | null)[];
  color?: string;
  isDots?: boolean;
  low?: (number | null)[];
  high?: (number | null)[];
}

const LIGHT = ["#3b55d9", "#0f8a5f", "#c2571a", "#a3379c", "#0b7c99", "#b3261e", "#6b6f1d", "#555e70"];
const DARK = ["#93a8ff", "#4cc38a", "#f0a05a", "#e58fe0", "#5cc5e0", "#ff8b94", "#cbcf6a", "#a9b2c3"];

export function color(place: number): string {
  const isDark = document.documentElement.dataset.theme === "dark";
  return (isDark ? DARK : LIGHT)[place % LIGHT.length]!;
}

function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

interface Props {
  title: string;
  steps: number[];
  lines: Line[];
  marks?: Pin[];
  range?: [number, number];
  height?: number;
  theme: string;
  unit?: string;
}

export function Chart({ title, steps, lines, marks = [], range, height = 150, theme, unit = "" }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const value = useRef<HTMLSpanElement>(null);
  const legend = useRef<HTMLDivElement>(null);
  const shape = `${theme}|${lines.map((line) => `${line.label}${line.isDots ? "·" : ""}${line.low ? "≈" : ""}`).join("|")}|${range}|${height}`;
  const marksNow = useRef(marks);
  marksNow.current = marks;
  const linesNow = useRef(lines);
  linesNow.current = lines;

  useEffect(() => {
    const node = place.current!;
    const drawn = linesNow.current;
    const { series, bands } = seriesOf(drawn);
    const axis = { stroke: variable("--faint"), grid: { stroke: variable("--line"), width: 1 }, ticks: { show: false }, font: `11px ${variable("--sans")}` };
    const showLegend = (shown: Line[], at: number | null) => {
      shown.forEach((line, place) => {
        const cell = legend.current?.children[place]?.querySelector("b");
        if (cell) cell.textContent = number(at === null ? lastOf(line) : line.values[at]);
      });
    };
    const showValue = (text: string) => value.current && (value.current.textContent = text);
    const made = new uPlot(
      {
        width: node.clientWidth || 320,
        height,
        padding: [8, 6, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false } },
        scales: { x: { time: false }, y: range ? { range: [range[0] - 0.02, range[1] + 0.03] } : {} },
        axes: [
          { ...axis, size: 22, gap: 4, space: 60, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1e6] },
          { ...axis, size: 44, gap: 4, values: (_, ticks) => ticks.map((tick) => number(tick)) },
        ],
        series: [{}, ...series],
        bands,
        hooks: {
          draw: [(self) => drawMarks(self, marksNow.current)],
          setCursor: [
            (self) => {
              const at = self.cursor.idx;
              const place = at ?? null;
              showValue(place === null ? lastText(linesNow.current, unit) : `step ${self.data[0][place]}${linesNow.current.length > 1 ? "" : `: ${number(linesNow.current[0]?.values[place])}${unit}`}`);
              showLegend(linesNow.current, place);
            },
          ],
        },
      },
      dataOf(steps, drawn),
      node,
    );
    plot.current = made;
    showValue(lastText(drawn, unit));
    const resize = new ResizeObserver(() => made.setSize({ width: node.clientWidth, height }));
    resize.observe(node);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(dataOf(steps, lines));
    if (value.current) value.current.textContent = lastText(lines, unit);
  }, [steps, lines, unit]);

  return (
    <figure className="card chart" style={{ margin: 0 }} aria-label={`${title}: ${lines.map((line) => `${line.label} ${number(lastOf(line))}`).join(", ")}`}>
      <figcaption className="chart-head">
        <h3>{title}</h3>
        <span className="value" ref={value} />
      </figcaption>
      {lines.length > 1 ? (
        <div className="legend" ref={legend}>
          {lines.map((line, at) => (
            <span key={line.label}>
              <i style={{ background: line.color ?? color(at) }} />
              {line.label} <b>{number(lastOf(line))}</b>
            </span>
          ))}
        </div>
      ) : null}
      <div ref={place} />
    </figure>
  );
}

function seriesOf(lines: Line[]): { series: uPlot.Series[]; bands: uPlot.Band[] } {
  const series: uPlot.Series[] = [];
  const bands: uPlot.Band[] = [];
  lines.forEach((line, at) => {
    const stroke = line.color ?? color(at);
    series.push({ label: line.label, stroke, width: line.isDots ? 1 : 1.6, spanGaps: true, points: { show: Boolean(line.isDots) || line.values.filter((value) => value !== null && value !== undefined).length < 3, size: 5, fill: stroke } });
    if (line.low && line.high) {
      series.push({ label: "high", stroke: "transparent", points: { show: false }, spanGaps: true }, { label: "low", stroke: "transparent", points: { show: false }, spanGaps: true });
      bands.push({ series: [series.length - 1, series.length], fill: `${stroke}22` });
    }
  });
  return { series, bands };
}

function dataOf(steps: number[], lines: Line[]): uPlot.AlignedData {
  const columns: (number | null)[][] = [];
  for (const line of lines) {
    columns.push(line.values);
    if (line.low && line.high) columns.push(line.high, line.low);
  }
  return [steps, ...columns] as uPlot.AlignedData;
}

function lastOf(line: Line): number | null | undefined {
  return line.values.findLast((value) => value !== null && value !== undefined);
}

function lastText(lines: Line[], unit: string): string {
  return lines.length > 1 ? "" : lines.map((line) => number(lastOf(line)) + unit).join("");
}

function drawMarks(plot: uPlot, marks: Pin[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.setLineDash([3, 3]);
  for (const mark of marks) {
    ctx.strokeStyle = variable(PIN_COLORS[mark.kind]);
    const x = Math.round(plot.valToPos(mark.step, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** Wilson's interval of a share, at 95 %. */
export function wilson(share: number | null | undefined, count: number | null | undefined): [number, number] | null {
  if (share === null || share === undefined || !count) return null;
  const z = 1.96;
  const middle = (share + (z * z) / (2 * count)) / (1 + (z * z) / count);
  const half = (z * Math.sqrt((share * (1 - share)) / count + (z * z) / (4 * count * count))) / (1 + (z * z) / count);
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}
