// Numbers and times as people read them.

const count = new Intl.NumberFormat("en");

export const number = (n) => count.format(n ?? 0);

/** span says how long something is: the two largest units. */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => s >= size);
  const [size, name] = units[first];
  const [below, small] = units[first + 1];
  const rest = Math.floor((s % size) / below);
  return rest && size < 864000 ? `${Math.floor(s / size)} ${name} ${rest} ${small}` : `${Math.floor(s / size)} ${name}`;
}

/** seconds between two moments given as text or milliseconds; NaN if one of them is none. */
export const between = (from, to) => (new Date(to) - new Date(from)) / 1000;

/** moment is UTC to the second, or nothing for a time that is not known. */
export function moment(text) {
  const t = new Date(text ?? NaN);
  return Number.isNaN(t.getTime()) || t.getUTCFullYear() < 1971 ? "" : t.toISOString().slice(0, 19).replace("T", " ") + "Z";
}

/** duration is for commits, given in milliseconds. */
export function duration(ms) {
  if (ms >= 10000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return ms >= 10 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(1)} ms`;
}

export const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;
