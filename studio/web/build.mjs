// Bundles the page into dist/, or, with --tests, the unit tests into .tests/. Nothing is fetched; what is bundled is what `npm ci` brought.
import { build, context } from "esbuild";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
process.chdir(here);

const page = {
  entryPoints: { app: "src/main.tsx" },
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"' },
  legalComments: "none", // all licences are in licences.txt
  metafile: true,
  logLevel: "warning",
};

/** What was built before, as text: `import app from "built:app.js"`. */
const built = {
  name: "built",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^built:/ }, ({ path }) => ({ path: join(here, "dist", path.slice("built:".length)), namespace: "built" }));
    onLoad({ filter: /.*/, namespace: "built" }, ({ path }) => ({ contents: readFileSync(path, "utf8"), loader: "text" }));
  },
};

// For notebooks: a module with the page in it.
const widget = { ...page, entryPoints: { widget: "src/widget.ts" }, format: "esm", plugins: [built] };

/** The folders of the packages that went into the bundle. */
function packages(metafile) {
  const found = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const match = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (match) found.add(match[1]);
  }
  return [...found].sort();
}

function licences(metafile) {
  const parts = ["The page of the rowgrad studio contains these packages.\n"];
  for (const folder of packages(metafile)) {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file ? readFileSync(join(folder, file), "utf8").trim() : `Licence: ${license}`;
    parts.push(`${"-".repeat(80)}\n${name} ${version} (${license})\n\n${text}\n`);
  }
  return parts.join("\n");
}

async function tests() {
  rmSync(".tests", { recursive: true, force: true });
  const files = readdirSync("tests").filter((file) => file.endsWith(".test.ts"));
  await build({
    entryPoints: files.map((file) => `tests/${file}`),
    outdir: ".tests",
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: ["node20"],
    sourcemap: "inline",
    logLevel: "warning",
  });
}

if (process.argv.includes("--tests")) {
  await tests();
} else if (process.argv.includes("--watch")) {
  await (await context({ ...page, minify: false, sourcemap: "inline" })).watch();
} else {
  if (!existsSync("dist")) mkdirSync("dist");
  const { metafile } = await build(page);
  await build(widget);
  writeFileSync("dist/licences.txt", licences(metafile));
}
