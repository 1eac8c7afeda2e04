// Numbers, money, times and sizes as text.

const GROUPED = new Intl.NumberFormat("en-US");

/** 12345 → "12,345" */
function count(value) {
  return GROUPED.format(Math.round(value));
}

/** 12345 → "12.3k" */
function compact(value) {
  const size = Math.abs(value);
  const short = (scaled, digits) => scaled.toFixed(digits).replace(".0", "");
  if (size >= 999_500) return short(value / 1e6, size >= 9.95e6 ? 0 : 1) + "M";
  if (size >= 1000) return short(value / 1e3, size >= 99_950 ? 0 : 1) + "k";
  return String(Math.round(value));
}

/** 0.01234 → "$0.0123"; 12.3 → "$12.30" */
function money(usd) {
  const size = Math.abs(usd);
  const digits = size === 0 || size >= 1 ? 2 : size >= 0.0001 ? 4 : 6;
  return (usd < 0 ? "−$" : "$") + size.toFixed(digits);
}

/** 0.876 → "87.6 %" */
function percent(share) {
  return (100 * share).toFixed(1) + " %";
}

/** Microseconds as "340 ms", "12.3 s", "4 min 5 s" or "3 h 20 min". */
function duration(us) {
  const seconds = us / 1e6;
  if (seconds < 1) return `${Math.round(us / 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} days ${Math.floor((seconds % 86_400) / 3600)} h`;
}

/** Local date and time to the second. */
function dateTime(us) {
  const at = new Date(us / 1000);
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clockTime(us)}`;
}

/** Local time to the second. */
function clockTime(us) {
  const at = new Date(us / 1000);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((value) => String(value).padStart(2, "0")).join(":");
}

/** 2048 → "2.0 kB" */
function bytes(size) {
  if (size >= 1e6) return (size / 1e6).toFixed(1) + " MB";
  if (size >= 1000) return (size / 1e3).toFixed(1) + " kB";
  return `${size} B`;
}

/** (1, "break") → "1 break"; (2, "break") → "2 breaks" */
function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}
