// Routes live behind the hash, so that the same app works from a server and from file://.
import { useSyncExternalStore } from "react";
import { firstPlace } from "./api";

export interface Place {
  parts: string[];
  params: URLSearchParams;
}

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

export function parsePlace(hash: string): Place {
  const wanted = hash.length > 2 ? hash : firstPlace();
  const [path = "", query = ""] = wanted.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, params: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function currentPlace(): Place {
  return parsePlace(window.location.hash);
}

export function usePlace(): Place {
  return parsePlace(useSyncExternalStore(subscribe, () => window.location.hash));
}

export function link(parts: string[], params?: Record<string, string | number | undefined>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== undefined && value !== "") query.set(name, String(value));
  }
  const path = parts.map(encodeURIComponent).join("/");
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

export function go(hash: string, replace = false): void {
  if (replace) {
    window.history.replaceState(null, "", hash);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    window.location.hash = hash;
  }
}

export function setParams(place: Place, changes: Record<string, string | undefined>): void {
  const merged: Record<string, string | undefined> = { ...Object.fromEntries(place.params), ...changes };
  go(link(place.parts, merged), true);
}
