import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// One classic script, not a module: browsers load no modules from file://, where exports are opened.
export default defineConfig({
  plugins: [react()],
  base: "./",
  build: {
    outDir: "../src/sparring/surfaces/web/static",
    emptyOutDir: true,
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    target: "es2022",
    lib: { entry: "src/main.tsx", name: "SparringApp", formats: ["iife"], fileName: () => "app.js" },
    rollupOptions: { output: { assetFileNames: "app.[ext]" } },
  },
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
});
