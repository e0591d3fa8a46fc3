// Runs a program for WASI: node wasi.mjs PROGRAM ARGUMENT... The files have to exist or be made in
// the folder of the program.
import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { argv, exit } from "node:process";
import { WASI } from "node:wasi";

const [, , program, ...given] = argv;
const folder = dirname(program);
const wasi = new WASI({
  version: "preview1",
  args: [program, ...given],
  preopens: { [folder]: folder },
  returnOnExit: true,
});
const module = new WebAssembly.Module(readFileSync(program));
exit(wasi.start(new WebAssembly.Instance(module, wasi.getImportObject())));
