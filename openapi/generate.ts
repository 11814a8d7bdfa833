import { writeFileSync } from 'node:fs';
import { openApiDocument } from './document.ts';

writeFileSync(new URL('work-api.json', import.meta.url), await openApiDocument());
