// Passkeys: asks the browser to create one or to sign with one, and sends the answer with the form.
const bytes = (text) => {
  const plain = atob(text.replace(/-/g, '+').replace(/_/g, '/'));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
};

const text = (buffer) => {
  const plain = String.fromCharCode(...new Uint8Array(buffer));
  return btoa(plain).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
};

const known = (list) => (list || []).map((each) => ({ ...each, id: bytes(each.id) }));

async function created(options) {
  const publicKey = {
    ...options,
    challenge: bytes(options.challenge),
    user: { ...options.user, id: bytes(options.user.id) },
    excludeCredentials: known(options.excludeCredentials),
  };
  const made = await navigator.credentials.create({ publicKey });
  const { response } = made;
  return answer(made, {
    clientDataJSON: text(response.clientDataJSON),
    attestationObject: text(response.attestationObject),
    transports: response.getTransports ? response.getTransports() : [],
  });
}

async function signed(options) {
  const publicKey = {
    ...options,
    challenge: bytes(options.challenge),
    allowCredentials: known(options.allowCredentials),
  };
  const found = await navigator.credentials.get({ publicKey });
  const { response } = found;
  return answer(found, {
    clientDataJSON: text(response.clientDataJSON),
    authenticatorData: text(response.authenticatorData),
    signature: text(response.signature),
    userHandle: response.userHandle ? text(response.userHandle) : null,
  });
}

function answer(credential, response) {
  return JSON.stringify({
    id: credential.id,
    rawId: text(credential.rawId),
    type: credential.type,
    response,
    clientExtensionResults: {},
  });
}

const WORDS = {
  InvalidStateError: 'This device has a passkey of your account already.',
  NotAllowedError: 'No passkey was used: the question was closed, took too long, or there is none here.',
  SecurityError: 'The browser allows no passkeys at this address.',
};

for (const form of document.querySelectorAll('[data-passkey]')) {
  const say = form.querySelector('[data-passkey-say]');
  const button = form.querySelector('[data-passkey-button]');
  if (!window.PublicKeyCredential) {
    say.textContent = 'This browser has no passkeys.';
    continue;
  }
  button.hidden = false;
  say.textContent = '';
  form.addEventListener('submit', async (event) => {
    if (form.elements.credential.value) return;
    event.preventDefault();
    const options = JSON.parse(form.dataset.options);
    button.disabled = true;
    say.textContent = 'Follow what your browser asks.';
    try {
      form.elements.credential.value = await (form.dataset.passkey === 'create' ? created(options) : signed(options));
      form.submit();
    } catch (error) {
      say.textContent = WORDS[error.name] || `The browser refused: ${error.message}`;
      button.disabled = false;
    }
  });
}
