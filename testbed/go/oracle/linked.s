// main.go declares functions without a body, which Go allows beside a file like this.
