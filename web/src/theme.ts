// Light or dark: as chosen before, else as the system is set.
import { useEffect, useState } from "react";

const stored = {
  read: (): string | null => {
    try {
      return localStorage.getItem("sparring-theme");
    } catch {
      return null; // file:// may have no storage
    }
  },
  write: (theme: string): void => {
    try {
      localStorage.setItem("sparring-theme", theme);
    } catch {
      /* see above */
    }
  },
};

export function useTheme(): [string, () => void] {
  const system = () => (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const [theme, setTheme] = useState(() => stored.read() ?? system());
  document.documentElement.dataset.theme = theme;
  useEffect(() => {
    const query = window.matchMedia("(prefers-color-scheme: dark)");
    const listen = () => stored.read() ?? setTheme(system());
    query.addEventListener("change", listen);
    return () => query.removeEventListener("change", listen);
  }, []);
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    stored.write(next);
    setTheme(next);
  };
  return [theme, toggle];
}
