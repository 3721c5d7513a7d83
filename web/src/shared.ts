// What every screen reads: who looks, and in which colours.
import { createContext, useContext } from "react";
import type { Session } from "./api";

interface Shared {
  session: Session;
  theme: string;
}

export const SharedContext = createContext<Shared | null>(null);

export function useShared(): Shared {
  return useContext(SharedContext)!;
}
