// Light or dark: as chosen before, else as the system is set.
import { useEffect, useState } from "react";
import { flushSync } from "react-dom";

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
  useEffect(() => {
    const print = () => flushSync(() => setTheme("light")); // dark charts would be unreadable on paper
    const restore = () => setTheme(stored.read() ?? system());
    window.addEventListener("beforeprint", print);
    window.addEventListener("afterprint", restore);
    return () => {
      window.removeEventListener("beforeprint", print);
      window.removeEventListener("afterprint", restore);
    };
  }, []);
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    stored.write(next);
    setTheme(next);
  };
  return [theme, toggle];
}
