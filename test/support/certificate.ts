import { createPrivateKey, X509Certificate } from 'node:crypto';

const KEY =
  'MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgnMSwE8fkHbx/S+FVu2Qjn52RqUhOdiVWmaZAYKpIO7mhRANCAAQc' +
  '4hzzv9WNRhaWCZ44d79+AeXMBPgxdRkt37REDpXGzRvW5LrkOxPt9oAmfTJK80c0080u/nkWxPx6zPK6W63h';

const CERTIFICATE =
  'MIIBPTCB46ADAgECAgEBMAoGCCqGSM49BAMCMBQxEjAQBgNVBAMMCTEyNy4wLjAuMTAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEw' +
  'MTAwMDAwMFowFDESMBAGA1UEAwwJMTI3LjAuMC4xMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEHOIc87/VjUYWlgmeOHe/fgHl' +
  'zAT4MXUZLd+0RA6Vxs0b1uS65DsT7faAJn0ySvNHNNPNLv55FsT8eszyulut4aMkMCIwDwYDVR0RBAgwBocEfwAAATAPBgNVHRMB' +
  'Af8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQDa6tGckGEpLG+lfQkvkgiqsjHD6m/ouppxJABXKsXLoQIhAP2861reYktITWib' +
  'azHZzJEuCQotAL7KCqYT5X/iMD1N';

/** Of 127.0.0.1 by its own word, until 2120: for tests of whom we talk to, and for nothing else. */
export const selfSigned = {
  key: createPrivateKey({ key: Buffer.from(KEY, 'base64'), format: 'der', type: 'pkcs8' })
    .export({ format: 'pem', type: 'pkcs8' })
    .toString(),
  cert: new X509Certificate(Buffer.from(CERTIFICATE, 'base64')).toString(),
};
