const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f]/g;
const INVISIBLE = /[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Text of models and tools with its control characters made visible: nothing reorders or hides. */
export function visible(text: string): string {
  return text
    .replace(CONTROLS, (sign) => (sign === "\u007f" ? "␡" : String.fromCharCode(0x2400 + sign.charCodeAt(0))))
    .replace(INVISIBLE, (sign) => `⟨U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

export function oneLine(text: string, most = 300): string {
  return visible(text.slice(0, most).replace(/\s+/g, " "));
}

export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100000) return compact(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

export function fixed(value: number | null | undefined, digits = 2): string {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

export function compact(value: number): string {
  return Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

export function signed(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value).toFixed(2);
  return value >= 0.005 ? `+${text}` : value <= -0.005 ? `−${text}` : text;
}

export function percent(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${Math.round(value * 100)}%`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
  const minutes = seconds / 60;
  if (minutes < 90) return `${Math.round(minutes)} min`;
  const hours = minutes / 60;
  return hours < 48 ? `${Number(hours.toFixed(1))} h` : `${Math.round(hours / 24)} d`;
}

export function ago(time: number): string {
  const seconds = Date.now() / 1000 - time;
  if (seconds < 60) return "just now";
  return `${duration(seconds)} ago`;
}

export function when(time: number): string {
  return new Date(time * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${Number(value.toPrecision(3))} ${units[place]}`;
}

export function words(name: string): string {
  return name.replace(/[_/]/g, " ");
}
